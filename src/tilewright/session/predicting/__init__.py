"""What predictors learn, answer, explain, and are judged by."""
