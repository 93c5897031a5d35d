"""What a user can ask for, one file each: these put the other rooms together."""
