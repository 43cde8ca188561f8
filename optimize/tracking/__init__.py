"""A study in MLflow: runs, traces, registry, feedback."""
