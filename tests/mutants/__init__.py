"""Plants small faults into a copy of the pure rooms and tells which of them no test notices."""
