"""The version of the package, and what a record is made with."""

from contextlib import suppress

__version__ = "0.1.0"


def versions(*packages: str) -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    installed = {"uncone": __version__}
    for package in packages:
        with suppress(PackageNotFoundError):
            installed[package] = version(package)
    return installed
