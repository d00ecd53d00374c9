"""The Dagster resources of fk-pipeline: the Spark session, the landing zone, and the result for assets downstream."""

from fk_pipeline.resources.landing import LandingZoneResource
from fk_pipeline.resources.result import FkResult
from fk_pipeline.resources.spark import FkSparkResource

__all__ = ["FkResult", "FkSparkResource", "LandingZoneResource"]
