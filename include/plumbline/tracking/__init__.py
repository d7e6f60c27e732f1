"""Where runs are kept: run directories, history, MLflow."""
