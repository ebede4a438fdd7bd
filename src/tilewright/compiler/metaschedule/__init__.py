"""TVM's MetaSchedule: its search, and its databases."""
