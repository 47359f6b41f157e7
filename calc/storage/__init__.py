"""What bytes a weight is: its format, its optimizer's states, its place in a checkpoint."""
