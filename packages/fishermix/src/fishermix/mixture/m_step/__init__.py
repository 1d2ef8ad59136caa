"""The M step: location and scale of every family and cell from sufficient statistics."""

from fishermix.mixture.m_step.base import ComponentSums, FamilyFit, FitPlan
from fishermix.mixture.m_step.irls import IRLSFit
from fishermix.mixture.m_step.median import MedianFit, RowSorter
from fishermix.mixture.m_step.moments import MomentFit
from fishermix.mixture.m_step.scoring import ScoringFit
from fishermix.mixture.m_step.shapes import ShapeSearch

__all__ = [
    "ComponentSums",
    "FamilyFit",
    "FitPlan",
    "IRLSFit",
    "MedianFit",
    "MomentFit",
    "RowSorter",
    "ScoringFit",
    "ShapeSearch",
]
