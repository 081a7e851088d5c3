"""Why and when, together: both look at the same copies and the same past."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirab.service.auth.principal import Principal
from mirab.service.evidence import Calibration, WhenAnswer, WhyAnswer
from mirab.service.views.when import PATIENCE, When
from mirab.service.views.why import WhyView

if TYPE_CHECKING:
    from mirab.service.desk.desk import Desk
    from mirab.service.live import Live


class Answers:
    """Made once, before the first decision; `start` begins to keep forecasts fresh."""

    def __init__(self, live: Live, desk: Desk | None = None) -> None:
        self._when = When(live, desk)
        self.forecaster = self._when.forecaster
        self._why = WhyView(live, self.forecaster)

    def start(self) -> None:
        self.forecaster.start()

    def why(self, job_id: str, whatif: bool = True) -> WhyAnswer | None:
        """See `WhyView.job`."""
        return self._why.job(job_id, whatif)

    def when(self, job_id: str, patience: float) -> WhenAnswer | None:
        """See `When.job`."""
        return self._when.job(job_id, patience)

    def suppose(self, who: Principal, request: Any, patience: float = PATIENCE) -> WhenAnswer:
        """See `When.suppose`."""
        return self._when.suppose(who, request, patience)

    def calibration(self) -> Calibration:
        return self._when.calibration()
