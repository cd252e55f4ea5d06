"""Reports: plans, explanations, profiles and graphs as text for people and JSON for programs. Nothing here prints."""
