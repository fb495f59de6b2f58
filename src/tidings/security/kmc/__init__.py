"""The key management centre: topics, grants, epochs and tokens.

Pure: the caller passes the time and a source of random bytes, and stores the changes.
"""

from tidings.security.kmc.centre import CentreReply as CentreReply
from tidings.security.kmc.centre import KeyManagementCentre as KeyManagementCentre
