"""hatstack for people: the `hat` command line and the laptop stack. The parts themselves are the packages below it."""
