"""The Dagster resources of fk-pipeline: the Spark session and the landing zone."""

from fk_pipeline.resources.landing import LandingZoneResource
from fk_pipeline.resources.spark import FkSparkResource

__all__ = ["FkSparkResource", "LandingZoneResource"]
