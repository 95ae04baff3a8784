"""Fast operations, each with its definition. Light to import; knows nothing of models or searches."""
