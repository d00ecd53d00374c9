"""The landing zone of a Dagster run: any file system that fsspec knows."""

from __future__ import annotations

from dagster import ConfigurableResource

from fk_pipeline.cdc.zone import FsspecLandingZone, LandingZone


class LandingZoneResource(ConfigurableResource[LandingZone]):
    """Lists landing files. Replace it to read from somewhere that fsspec does not know."""

    def zone(self) -> LandingZone:
        """Returns the landing zone that the engine reads."""
        return FsspecLandingZone()
