"""The command line `hat <noun> <verb>`. stdout is data, stderr is narration; a module's imports happen on use."""
