"""The Dagster resources of fk-pipeline: the Spark session and the landing zone."""

from resources.landing import LandingZoneResource
from resources.spark import FkSparkResource

__all__ = ["FkSparkResource", "LandingZoneResource"]
