"""Every named bound of the broker: name, unit last; one section a part. Exported as metrics by telemetry."""

from __future__ import annotations

from typing import Final

