"""Open a remote file by the scheme of its address."""

from uncone.rows.remote.address import Address
from uncone.rows.remote.source import RemoteFile


def open_remote(address: Address, *, allow_full: bool = False) -> RemoteFile:
    """InputError: the file does not exist, may not be read, or the package for its scheme is missing."""
    if address.is_http:
        from uncone.rows.remote.http import HttpFile

        return HttpFile(address, allow_full=allow_full)
    from uncone.rows.remote.store import StoreFile

    return StoreFile(address)
