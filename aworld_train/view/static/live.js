// The page of the server.
import { start } from './app.js';
import { serverSource, setSource } from './data.js';

setSource(serverSource());
start();
