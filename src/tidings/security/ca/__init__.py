"""The certificate authority: certificates, identities and the revocation list."""
