"""The commands of ``segreader``, each in the module of its name, imported when it is asked for."""
