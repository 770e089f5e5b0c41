"""The registry over HTTP: `/api/v1/...`, JSON, problem+json errors. Rules live in the domain; routes only translate."""
