/** Whether this is the single-file export, which can load nothing. */
declare const SINGLE: boolean;
declare module '*.css';
