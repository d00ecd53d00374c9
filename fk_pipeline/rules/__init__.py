"""The rules that tables must keep: those of any log and any state, and the scan that finds broken rows."""
