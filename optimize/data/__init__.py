"""The labels of a study: checked, split, matched to statements."""
