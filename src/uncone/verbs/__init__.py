"""What a user can ask for, one file each: these put the other rooms together."""

from uncone.lazy import open_room

open_room(__name__)
