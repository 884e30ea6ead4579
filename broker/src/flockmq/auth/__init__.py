"""Authentication, authorization and bans."""
