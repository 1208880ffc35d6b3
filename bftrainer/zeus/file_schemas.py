"""Schemas of the files about recurring jobs, derived from the classes whose values they hold.

Import it lazily: pydantic takes as long to load as a simulation to run.
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, Literal, TypeAlias, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from bftrainer.errors import InputError
from bftrainer.files.documents import telling_fault
from bftrainer.files.opening import one_line
from bftrainer.zeus.master.recurrences import Booked, Launch, Plan
from bftrainer.zeus.master.script import RunSettings, TrainingReport
from bftrainer.zeus.policies.job import Job

_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
_SCHEMA: TypeAlias = Annotated[Literal[1], Field(alias="schema")]
_COUNT, _AMOUNT = Annotated[int, Field(ge=0)], Annotated[float, Field(ge=0)]
_NUMBER = Annotated[int, Field(ge=1)]
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

# A job in a journal, which also holds how it is launched.
KeptJob = _table_of("KeptJob", Job, _JOB)

# --- the journal and the job file of a master ---------------------------------------------------------------------

_USED = {"energy_j": _AMOUNT, "time_s": _AMOUNT}
_LaunchRow = _table_of("LaunchRow", Launch, dict.fromkeys(("recurrence", "attempt", "batch_size"), _NUMBER))
_BookedRow = _table_of("BookedRow", Booked, {"launch": _LaunchRow, **_USED, "cost_j": _AMOUNT})
# The report of a run that is not booked yet.
_MadeTable = _table_of("MadeTable", TrainingReport, {**_USED, "epochs": (_COUNT | None, None), "failure": str | None})
_ProgressTable = _table_of(
    "ProgressTable",
    None,
    {
        "recurrence": _NUMBER,
        "attempt": _NUMBER,
        "seed": int,
        # Costs that are null are infinite.
        "min_cost_j": _AMOUNT | None,
        "others_cost_j": _AMOUNT | None,
        "spent_j": _AMOUNT,
        "pending": _LaunchRow | None,
        "made": _MadeTable | None,
        "booked": GenericAlias(list, _BookedRow),
        "failure": str | None,
    },
)
_PlanTable = _table_of(
    "PlanTable", Plan, {"job": KeptJob, "recurrences": _COUNT, "batch_sizes": list[int], "beta_knob": float | None}
)
JournalDocument = _table_of(
    "JournalDocument",
    None,
    {
        "schema_": _SCHEMA,
        "plan": _PlanTable,
        "settings": _table_of("SettingsTable", RunSettings, {"max_power_w": float, "gpus": int}),
        # The policy itself checks its state.
        "policy": dict[str, Any] | None,
        "progress": _ProgressTable,
    },
)

# A job file must say how its job is launched.
_LAUNCHED: Mapping[str, Any] = {
    "default_bs": int,
    "default_lr": float,
    "workdir": (str, "."),
    "command": Annotated[list[str], Field(min_length=1)],
}
LaunchedJob = _table_of("LaunchedJob", Job, {**_NAMES, **_LAUNCHED})
_KINDS_OF_SETTINGS = get_type_hints(RunSettings)
# A job file: a job that recurs, and how it is tuned; settings of its runs may be left out.
JobFile = _table_of(
    "JobFile",
    None,
    {
        "schema_": _SCHEMA,
        "job": LaunchedJob,
        "recurrences": _NUMBER,
        "batch_sizes": Annotated[list[_NUMBER], Field(min_length=1)],
        "eta": (float, 0.5),
        # TOML can write infinity: never stop a run.
        "beta": (Annotated[float, Field(allow_inf_nan=True)], 2.0),
        "seed": (int, 123456),
        "policy": (str, "zeus"),
        "window_size": (int, 0),
        "log_base": (str, "zeus_log"),
        "allow_mixed": (bool, False),
        **{each.name: (_KINDS_OF_SETTINGS[each.name], each.default) for each in fields(RunSettings)},
    },
)
