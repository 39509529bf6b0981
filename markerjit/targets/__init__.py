"""Processes that are meant by what people know of them: a pid, a name, a program's file, a control
group, a container, a user. Only reads /proc, and attaches to nothing."""
