"""The two notations of policies, text and XML: parsers and printers."""
