"""Other inference engines to stand beside, each in a process of its own."""
