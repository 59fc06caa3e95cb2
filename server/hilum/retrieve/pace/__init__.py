"""How fast a source may be asked: timetable, rates, rests and the circuit breaker."""
