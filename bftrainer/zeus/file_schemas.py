"""Schemas of the files about recurring jobs, derived from the classes whose values they hold.

Import it lazily: pydantic takes as long to load as a simulation to run.
"""

from collections.abc import Mapping
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, Literal, TypeAlias, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from bftrainer.errors import InputError
from bftrainer.files.documents import telling_fault
from bftrainer.files.opening import one_line
from bftrainer.zeus.policies.job import HistoryEntry, Job
from bftrainer.zeus.simulation.campaign import Simulation
from bftrainer.zeus.simulation.files import RUN_COLUMNS
from bftrainer.zeus.simulation.recurring import Corrections
from bftrainer.zeus.simulation.simulator import Group

_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
_SCHEMA: TypeAlias = Annotated[Literal[1], Field(alias="schema")]
_COUNT, _SIZE, _AMOUNT = Annotated[int, Field(ge=0)], Annotated[int, Field(gt=0)], Annotated[float, Field(ge=0)]
_Table: TypeAlias = type[BaseModel]


def _table_of(
    name: str, kind: type | None, changes: Mapping[str, Any], config: ConfigDict = _STRICT
) -> type[BaseModel]:
    """A table with the fields of a class.

    Parameters
    ----------
    name : str
        What messages call the table.
    kind : type or None
        A dataclass or named tuple; all its fields are required, whatever their defaults.
    changes : mapping
        By field: another type, that of a further field, a pair of type and default, or None to leave the field out.
    config : ConfigDict
    """
    fields = (get_type_hints(kind) if kind is not None else {}) | dict(changes)
    typed = {
        name: each if isinstance(each, tuple) else (each, ...) for name, each in fields.items() if each is not None
    }
    kept = "A document of a file." if kind is None else f"A table of a file: what a `{kind.__name__}` holds."
    return create_model(name, __config__=config, __doc__=kept, **typed)  # type: ignore[call-overload, no-any-return]


def validated(model: _Table, document: Any, path: Path, error: type[InputError], what: str) -> dict[str, Any]:
    """Check a document, which messages call `what`, and return its values.

    Raises
    ------
    InputError
        As `error`, naming file and field: if it does not have the form of `model`.
    """
    try:
        return model.model_validate(document).model_dump(by_alias=True)
    except ValidationError as found:
        fault = telling_fault(found)
        place = ".".join(map(str, fault["loc"])) or what
        raise error(f"{path}: {place}: {fault['msg']}, got {one_line(fault['input'])}.") from None


_NAMES = dict.fromkeys(("dataset", "network", "optimizer"), Annotated[str, Field(min_length=1)])
_JOB: Mapping[str, Any] = {**_NAMES, "default_bs": (int | None, None), "default_lr": (float | None, None)}

# `[[job]]` of a file of jobs; and a job in results, which also hold how it is launched.
JobTable = _table_of("JobTable", Job, {**_JOB, "workdir": None, "command": None})
KeptJob = _table_of("KeptJob", Job, _JOB)

_RANGES = {"batch_size": _SIZE, "power_limit_w": _SIZE, "cost_j": float, "runtime_ratio": Annotated[float, Field(gt=0)]}
_KINDS = {int: _COUNT, float: _AMOUNT, bool: bool}
_RunRow = _table_of("RunRow", None, {name: _RANGES.get(name, _KINDS[kind]) for name, kind in RUN_COLUMNS.items()})
_GroupTable = _table_of("GroupTable", Group, {"jobs": list[Annotated[list[float], Field(min_length=3, max_length=3)]]})
SimulationTable = _table_of(
    "SimulationTable",
    Simulation,
    {
        "job": KeptJob,
        "group": _GroupTable | None,
        # null is infinity.
        "beta_knob": float | None,
        "corrections": _table_of("CorrectionsTable", Corrections, {"server_costs": (bool, False)}),
        "failure": str | None,
        "runs": GenericAlias(list, _RunRow),
    },
)
# Further keys of a file of results only describe it.
ResultsDocument = _table_of(
    "ResultsDocument",
    None,
    {"schema_": _SCHEMA, "partial": bool, "simulations": GenericAlias(list, SimulationTable)},
    ConfigDict(strict=True, allow_inf_nan=False),
)
_HistoryRow = _table_of(
    "HistoryRow", HistoryEntry, {"bs": _SIZE, "pl": _SIZE | None, "energy": _AMOUNT, "time": _AMOUNT}
)
HistoryDocument = _table_of("HistoryDocument", None, {"schema_": _SCHEMA, "history": GenericAlias(list, _HistoryRow)})
