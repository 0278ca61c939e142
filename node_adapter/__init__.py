"""The node's side: a client, real chains' formats, and a simulated permissioned chain."""
