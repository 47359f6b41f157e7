"""How long things take: machines, what each operation costs on one, a roofline over all of them, measured runs."""
