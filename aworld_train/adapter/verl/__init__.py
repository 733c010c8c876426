"""The adapter for VeRL, whose import imports neither VeRL nor torch. CONTRIBUTING.md says what of VeRL it replaces."""
