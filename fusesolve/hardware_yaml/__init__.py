"""Hardware profiles from YAML: strict parsing, inheritance, every error at once. The only home of yaml for them."""

from fusesolve.hardware_yaml.loader import (
    find_profile,
    load_profile,
    parse_profile,
    profile_from_definition,
    with_value,
)
from fusesolve.hardware_yaml.paths import NumberPath, number_at, number_paths
from fusesolve.hardware_yaml.profiles import ProfileSummary, ShownLeaf, check_profile, list_profiles, show_profile

__all__ = [
    "NumberPath",
    "ProfileSummary",
    "ShownLeaf",
    "check_profile",
    "find_profile",
    "list_profiles",
    "load_profile",
    "number_at",
    "number_paths",
    "parse_profile",
    "profile_from_definition",
    "show_profile",
    "with_value",
]
