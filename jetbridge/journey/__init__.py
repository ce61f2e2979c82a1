"""The spans of each request: made at the seams, kept and shown. The only room that knows OpenTelemetry."""
