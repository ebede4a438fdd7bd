"""`collect`: operators measured for predictors to learn from."""
