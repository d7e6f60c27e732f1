"""What speaks Airflow: the stages as tasks, the launch operator, notifications. Knows nothing of any benchmark."""
