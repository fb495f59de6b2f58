"""The key management centre: topics, rights, epochs and tokens. All of it is pure: time is given, and what is drawn at
random comes from outside."""

from tidings.security.centre.centre import KeyManagementCentre as KeyManagementCentre
from tidings.security.centre.centre import Reply as Reply
