"""Pictures of budgets: figures as data, with exact numbers, and what draws them for a file or for the terminal."""
