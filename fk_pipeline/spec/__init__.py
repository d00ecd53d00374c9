"""The pipeline file: frozen, validated, with line-accurate errors."""

from fk_pipeline.spec.inputs import LeftSpec, SideSpec
from fk_pipeline.spec.load import load_spec
from fk_pipeline.spec.model import Output, PipelineSpec
from fk_pipeline.spec.settings import Settings
from fk_pipeline.spec.sql import Column, quote

__all__ = ["Column", "LeftSpec", "Output", "PipelineSpec", "Settings", "SideSpec", "load_spec", "quote"]
