"""A run of MLflow, in the folder of the training unless $MLFLOW_TRACKING_URI names a server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nas.callbacks.registry import callback
from nas.errors import NasError

LONGEST = 500  # characters of a parameter that MLflow accepts


@callback("mlflow")
class MLflow:
    """A run with the settings as parameters. Raises NasError if mlflow is not installed."""

    shared = True  # one database holds many runs

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        try:
            import mlflow
        except ImportError:
            raise NasError("The callback mlflow needs a package: pip install mlflow.") from None
        self._mlflow: Any = mlflow
        if "MLFLOW_TRACKING_URI" not in os.environ:
            mlflow.set_tracking_uri(f"sqlite:///{(folder / 'mlflow.db').absolute()}")
        mlflow.set_experiment("tessera")
        mlflow.start_run(run_name=str(about.get("name", "training")))
        mlflow.log_params({name: str(value)[:LONGEST] for name, value in about.items()})

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(values), step=step)

    def close(self) -> None:
        self._mlflow.end_run()
