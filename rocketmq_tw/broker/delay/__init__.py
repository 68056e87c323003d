"""Messages that wait for their time: the delay levels and who delivers what is due."""
