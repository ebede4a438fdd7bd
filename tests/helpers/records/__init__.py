"""Made-up rows, results and files as tilewright keeps them."""
