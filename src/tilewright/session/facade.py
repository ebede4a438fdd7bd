"""The facade: one object, one method per verb. The work is in the rooms below."""

from __future__ import annotations

from tilewright.report import displays
from tilewright.session.forecasts import ForecastVerbs
from tilewright.session.networks import NetworkVerbs
from tilewright.session.records import RecordVerbs
from tilewright.session.studies import StudyVerbs

displays.install()


class Session(NetworkVerbs, ForecastVerbs, StudyVerbs, RecordVerbs):
    """Work on one device with one database. Use it as a context manager or call `close`.

    `meter` is the name of the meter by which `collect` measures energy, too; None for none.
    A model is a text as on the command line, a path, an `onnx.ModelProto`, a `torch.nn.Module`, or
    a pair of one and its example inputs. None stands for the default of any argument.
    """
